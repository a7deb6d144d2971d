"""What operators see: logs now; metrics, traces and probes beside them."""
