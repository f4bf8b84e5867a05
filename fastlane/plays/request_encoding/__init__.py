"""The play `Encoding`: compressed and MessagePack request bodies."""
