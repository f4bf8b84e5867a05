"""The play `RequestEncoding`: compressed and MessagePack request bodies."""
