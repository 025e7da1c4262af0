"""What runs inside a user's kernel. Needs IPython and the standard library only, on Python 3.9 or
newer, and nothing else of `jupyter_gpushare`: the provisioner hands this folder to kernels of
environments that do not have the package.

startup             IPython runs this file when a kernel starts
loader              loads this package from its folder into a kernel
package             `jupyter_gpushare` in an environment that does not have it
ipython_extension   `%load_ext jupyter_gpushare`
magics, gpu, panel  `%gpu`, the same as functions, and a widget
gang                `gpu.cluster`: workers of Dask or ipyparallel with shares
grant_wait          waits until a request is granted
rpc                 one request to the node agent, and its reply
session             the parts of one kernel, and reactions to messages of the agent
display             text, HTML and charts
cell_gate           a cell waits here until it may run
frameworks          memory limits of PyTorch, CuPy and JAX
connection          the socket to the node agent
kernel_body         a kernel's body before the agent has sent one
protocol            the version of the messages
documentation       addresses of pages of the documentation
option_names        options in place of the field names of a request
sizes               amounts of memory as text
simgpu              a simulated GPU for user code
simnode             the file of the simulated node, which kernels and the agent share
"""
