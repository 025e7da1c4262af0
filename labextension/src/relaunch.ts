/**
 * Lets cells go that a killed kernel will never answer.
 *
 * When the server restarts a kernel for a reclaim, JupyterLab is not told as it is for its own restarts: the requests of
 * the old process stay open and their cells show [*] for ever. The server's own "restarting" status would end them, but
 * it also opens the dialog "appears to have died", which says nothing true here.
 */
import { CodeCell } from '@jupyterlab/cells';
import { INotebookTracker, NotebookPanel } from '@jupyterlab/notebook';

import { IGpuShare } from './tokens';

export function releaseCellsOfKilledKernels(gpushare: IGpuShare, notebooks: INotebookTracker): void {
  gpushare.news.connect((_, { kernel, event }) => {
    if (event.kind === 'killed') {
      notebooks
        .filter(panel => panel.sessionContext.session?.kernel?.id === kernel.kernel_id)
        .forEach(panel => void letGo(panel));
    }
  });
}

/** End every open request of this notebook, then connect anew: the ports may have changed with the process. */
async function letGo(panel: NotebookPanel): Promise<void> {
  for (const cell of panel.content.widgets) {
    if (cell instanceof CodeCell) {
      const future = cell.outputArea.future as CodeCell['outputArea']['future'] | undefined;
      future?.dispose(); // its promise is rejected as cancelled, and the cell clears its [*]
    }
  }
  await panel.sessionContext.session?.kernel?.reconnect();
}
