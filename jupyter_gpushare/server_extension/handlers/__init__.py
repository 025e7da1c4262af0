"""HTTP and WebSocket handlers under `<base_url>gpushare/api/` (`api`)."""
