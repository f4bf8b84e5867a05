"""Everything that knows private parts of openai and of its HTTP client, beside `decode`.

Supported is openai 2.47 up to 3. The contract tests run with 2.47.0, 3.3.1 and the version of constraints.txt, openai's
own tests with 2.54.0 and that version. `tests/contract/test_openai_loop.py` lists the versions whose loop around an
attempt was compared with ours, and fails for a loop that it does not know.

A fast path is taken where nobody has put their own in the place of what it passes by (`requests.OwnMethods`, asked for
each call), and where what it takes for granted holds (`decode.probes.holds`, asked once). Otherwise openai's own code
runs, with the same results, and one warning says so where a probe has failed:

resources      the walk through a body   openai's `create()` and `parse()` are plain functions that ask for the same
                                         with a copied `maybe_transform`, and no type of arguments renames a field
requests       FinalRequestOptions       `construct()` gives the same fields for options with and without arguments
requests       URL, headers, timeouts    each kind of request is compared with openai's before it is used again
send           the HTTP client's layers  the transport is ours; no hooks, mounts, credentials; known names in its module
responses      `_process_response()`     `Stream()` takes the arguments that are known; `decode` builds equal objects
streams        SSEDecoder, `__stream__`  `Stream` and `AsyncStream` make the same of the plainest events
bodies         the HTTP client's timing  the wrapper around a body hands its pieces on, and does nothing else
"""
