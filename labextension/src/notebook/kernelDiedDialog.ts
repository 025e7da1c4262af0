/** Adds the reason to JupyterLab's dialog "appears to have died", which has no extension point. */
import { Dialog } from '@jupyterlab/apputils';
import { INotebookTracker, NotebookPanel } from '@jupyterlab/notebook';
import { TranslationBundle } from '@jupyterlab/translation';
import { Widget } from '@lumino/widgets';

import { deathReason } from '../messages';
import { kernelOf } from '../notebooks';
import { IGpuShare } from '../tokens';

export function explainKernelDeaths(
  gpushare: IGpuShare,
  notebooks: INotebookTracker,
  trans: TranslationBundle
): void {
  Dialog.tracker.widgetAdded.connect((_, dialog) => {
    const panel = notebookOfDiedKernel(notebooks);
    if (panel === null) {
      return;
    }
    const line = new Widget({ node: document.createElement('div') });
    line.addClass('jp-GpuShare-death');
    const update = () => {
      line.node.textContent = deathReason(kernelOf(panel, gpushare.state), Date.now(), trans);
    };
    update();
    gpushare.changed.connect(update); // the event may arrive after the dialog
    dialog.disposed.connect(() => gpushare.changed.disconnect(update));
    dialog.node.querySelector('.jp-Dialog-body')?.append(line.node);
  });
}

/** The notebook whose kernel is restarting after its death; null for other dialogs. */
function notebookOfDiedKernel(notebooks: INotebookTracker): NotebookPanel | null {
  return (
    notebooks.find(panel => panel.sessionContext.session?.kernel?.status === 'autorestarting') ??
    null
  );
}
