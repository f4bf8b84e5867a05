"""All code that uses private parts of openai and of its HTTP client, except `decode`.

Supported versions of openai are 2.47 up to 3. The contract tests run with 2.47.0, 3.3.1 and the version of
constraints.txt, openai's own tests with 2.54.0 and that version. `tests/contract/test_openai_loop.py` lists the
versions whose retry loop was compared with ours, and fails for an unknown loop.

A fast path is taken if none of the methods that it bypasses is overridden or patched (`requests.OwnMethods`, checked
for each call), and if its assumptions hold (`decode.probes.holds`, checked once). Otherwise openai's own code runs,
with the same results. A failed probe logs one warning. The fast paths and their assumptions:

openai_types   packages of `openai.types`  they only say which module holds which name
resources      transforming a body       openai's `create()` and `parse()` are plain functions that send the same
                                         with a copied `maybe_transform`, and no argument type renames a field
requests       FinalRequestOptions       `construct()` gives the same fields for options with and without arguments
requests       URL, headers, timeouts    each kind of request is compared with openai's before it is used again
send           the HTTP client's layers  the transport is ours; no hooks, mounts, credentials; known names in its module
responses      `_process_response()`     `Stream()` takes the arguments that are known; `decode` builds equal objects
streams        SSEDecoder, `__stream__`  `Stream` and `AsyncStream` make the same of the plainest events
bodies         the HTTP client's timing  the wrapper around a body hands its pieces on, and does nothing else
"""
