"""What runs inside a user's kernel. Needs IPython and the standard library only, on Python 3.9 or
newer.

ipython_extension   `%load_ext jupyter_gpushare`
magics, gpu, panel  `%gpu`, the same as functions, and a widget
rpc                 one request to the node agent, and its reply
session             what this kernel holds: connection, gate, display, framework caps
display             text, HTML and charts
cell_gate           a cell waits here until it may run
frameworks          memory caps of PyTorch, CuPy and JAX
connection          the socket to the node agent
simgpu              a simulated GPU for user code
"""
