# IPython runs this file when a kernel starts: the kernel provisioner names it in PYTHONSTARTUP,
# which IPython reads itself, so that it works with `python -I`, in wrapper scripts and in
# `conda run`, and changes nothing in the user's IPython configuration.
#
# It runs in the namespace of the notebook and must leave nothing there. Kernels of older Pythons
# read it as well: its syntax is that of Python 2.7 and 3.6.
"""Loads the cell gate and `%gpu` into a kernel whose environment may not have jupyter-gpushare."""


def _gpushare_startup():
    """Restore the user's own PYTHONSTARTUP, and load the extension. Returns the user's file."""
    import os
    import sys

    ours = os.environ.pop("PYTHONSTARTUP", "")
    users = os.environ.pop("GPUSHARE_USER_STARTUP", "")
    if users:
        os.environ["PYTHONSTARTUP"] = users
    shell = globals().get("get_ipython", lambda: None)()
    if not hasattr(getattr(shell, "kernel", None), "iopub_socket"):
        return users  # a terminal, or a kernel that is not ipykernel
    if sys.version_info < (3, 9):
        sys.stderr.write("gpushare: no cell gate and no %gpu: they need Python 3.9 or newer\n")
        return users
    try:
        namespace = {}
        path = os.path.join(os.path.dirname(ours), "loader.py")
        with open(path) as file:
            exec(compile(file.read(), path, "exec"), namespace)
        namespace["load"](os.path.dirname(ours), shell)
    except Exception as error:
        sys.stderr.write("gpushare: no cell gate and no %%gpu: %r\n" % error)
    return users


_gpushare_startup = _gpushare_startup()
try:
    if _gpushare_startup:
        with open(_gpushare_startup) as _gpushare_startup:
            exec(compile(_gpushare_startup.read(), _gpushare_startup.name, "exec"))
finally:
    del _gpushare_startup
