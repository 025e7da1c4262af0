/**
 * Lets cells go that a killed kernel will never answer.
 *
 * When the server restarts a kernel for a reclaim, JupyterLab is not told as it is for its own restarts: the requests of
 * the old process stay open and their cells show [*] for ever. The server's own "restarting" status would end them, but
 * it also opens the dialog "appears to have died", which says nothing true here.
 */
import type { CodeCell } from '@jupyterlab/cells';
import { INotebookTracker, NotebookPanel } from '@jupyterlab/notebook';

import { IGpuShare } from '../tokens';

export function cancelRequestsOfKilledKernels(
  gpushare: IGpuShare,
  notebooks: INotebookTracker
): void {
  gpushare.news.connect((_, { kernel, event }) => {
    if (event.kind === 'killed') {
      notebooks
        .filter(panel => panel.sessionContext.session?.kernel?.id === kernel.kernel_id)
        .forEach(panel => void cancelRequests(panel));
    }
  });
}

/** Time for the dying kernel to say in its cell why it ends; what is still open then never hears anything. */
const FINAL_OUTPUT_MS = 3000;

/** End the requests that are open now, not those that a person sends meanwhile; then connect anew: ports may have changed. */
async function cancelRequests(panel: NotebookPanel): Promise<void> {
  const open = openRequests(panel);
  const finalOutput = new Promise(resolve => window.setTimeout(resolve, FINAL_OUTPUT_MS));
  await Promise.race([Promise.allSettled(open.map(future => future.done)), finalOutput]);
  open.forEach(future => future.dispose()); // its promise is rejected as cancelled, and the cell clears its [*]
  if (!panel.isDisposed) {
    await panel.sessionContext.session?.kernel?.reconnect();
  }
}

function openRequests(panel: NotebookPanel): Request[] {
  return (
    panel.content.widgets
      // not by `instanceof`: an older JupyterLab does not share its cells with us, and ours would be another class
      .map(cell =>
        cell.model.type === 'code'
          ? ((cell as CodeCell).outputArea.future as Request | undefined)
          : undefined
      )
      .filter((future): future is Request => future !== undefined && !future.isDisposed)
  );
}

type Request = CodeCell['outputArea']['future'];
