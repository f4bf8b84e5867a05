"""Real backends for traces and metrics, driven by fastlane and read back: Arize Phoenix, MLflow and Prometheus."""
