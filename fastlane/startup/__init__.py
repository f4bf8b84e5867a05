"""The folder that `fastlane run` puts on PYTHONPATH, for its `sitecustomize`."""
