"""HTTP and WebSocket handlers under `<base_url>gpushare/api/`.

`api` has the URL table and the REST handlers, `stream` the WebSocket, `base` what they share.
"""
