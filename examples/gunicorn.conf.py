"""gunicorn with several workers for `fastapi_app`: each forked worker opens connections of its own.

gunicorn --config examples/gunicorn.conf.py examples.fastapi_app:app
"""

workers = 2
worker_class = "uvicorn_worker.UvicornWorker"
preload_app = True
graceful_timeout = 120  # seconds: on SIGTERM, open streams may end
bind = "127.0.0.1:8000"
