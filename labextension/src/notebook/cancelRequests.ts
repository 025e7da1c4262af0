/**
 * Ends the cells that a killed kernel will never answer. JupyterLab does not learn of restarts by
 * the server, so requests of the old process stay open and their cells show [*]. The server's
 * "restarting" status would end them, but it also opens the dialog "appears to have died".
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

/** Time for the final output of the dying kernel. */
const FINAL_OUTPUT_MS = 3000;

/** Cancel the requests that are open now, then reconnect, because ports may have changed. */
async function cancelRequests(panel: NotebookPanel): Promise<void> {
  const open = openRequests(panel);
  const finalOutput = new Promise(resolve => window.setTimeout(resolve, FINAL_OUTPUT_MS));
  await Promise.race([Promise.allSettled(open.map(future => future.done)), finalOutput]);
  open.forEach(future => future.dispose()); // rejects its promise as cancelled, which clears [*]
  if (!panel.isDisposed) {
    await panel.sessionContext.session?.kernel?.reconnect();
  }
}

function openRequests(panel: NotebookPanel): Request[] {
  return (
    panel.content.widgets
      // no `instanceof`: older JupyterLab versions do not share the class of cells with extensions
      .map(cell =>
        cell.model.type === 'code'
          ? ((cell as CodeCell).outputArea.future as Request | undefined)
          : undefined
      )
      .filter((future): future is Request => future !== undefined && !future.isDisposed)
  );
}

type Request = CodeCell['outputArea']['future'];
