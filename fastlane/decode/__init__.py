"""Bytes of JSON documents to openai's typed objects, equal always to those that the stock client makes."""

from ._decoders import Decoder as Decoder, answer_decoder as answer_decoder, event_decoder as event_decoder

__all__ = ["Decoder", "answer_decoder", "event_decoder"]
