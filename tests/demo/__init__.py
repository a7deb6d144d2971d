"""The demo, the example handlers and the README, as people meet them."""
