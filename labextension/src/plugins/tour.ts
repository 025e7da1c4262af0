/** Runs the other notebooks of the demo's tutorial when it asks (jupyter_gpushare/demo/tour.py). */
import { JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { INotebookTracker, NotebookActions, NotebookPanel } from '@jupyterlab/notebook';
import { Kernel } from '@jupyterlab/services';

import { COMMANDS } from '../commands';
import { IGpuShare } from '../tokens';

const TARGET = 'jupyter-gpushare:tour';

/** What a cell of the tutorial asks: run this notebook, or shut its kernel down. */
interface ITourRequest {
  readonly run?: string;
  readonly shutdown?: string;
}

export const tour: JupyterFrontEndPlugin<void> = {
  id: 'jupyter-gpushare:tour',
  description: "Runs the other notebooks of the demo's tutorial.",
  autoStart: true,
  requires: [IGpuShare],
  optional: [INotebookTracker],
  activate: (app: JupyterFrontEnd, gpushare: IGpuShare, notebooks: INotebookTracker | null) => {
    const follow = (kernel: Kernel.IKernelConnection | null | undefined) =>
      kernel?.registerCommTarget(TARGET, (_comm, message) => {
        // only with simulated GPUs: no other server has a tutorial
        if (gpushare.state.status?.simulated === true) {
          void guide(app, message.content.data as ITourRequest);
        }
      });
    notebooks?.widgetAdded.connect((_, panel) => {
      follow(panel.sessionContext.session?.kernel);
      panel.sessionContext.kernelChanged.connect((_sender, { newValue }) => follow(newValue));
    });
  }
};

async function guide(app: JupyterFrontEnd, { run, shutdown }: ITourRequest): Promise<void> {
  void app.commands.execute(COMMANDS.show);
  if (run !== undefined) {
    const panel = await open(app, run);
    await NotebookActions.runAll(panel.content, panel.sessionContext);
  } else if (shutdown !== undefined) {
    const { sessions } = app.serviceManager;
    const session = await sessions.findByPath(shutdown);
    await (session === undefined ? undefined : sessions.shutdown(session.id));
  }
}

/** The notebook behind the tutorial, which keeps the focus. */
async function open(app: JupyterFrontEnd, path: string): Promise<NotebookPanel> {
  const options = { activate: false, mode: 'tab-after' };
  const panel: NotebookPanel = await app.commands.execute('docmanager:open', {
    path,
    factory: 'Notebook',
    kernel: { name: 'python3' },
    options
  });
  await panel.context.ready;
  await panel.sessionContext.ready;
  return panel;
}
