/** Saves the chosen share in the notebook, and requests it when the notebook is opened again. */
import { INotebookTracker, NotebookPanel } from '@jupyterlab/notebook';
import { ISignal, Signal } from '@lumino/signaling';

import {
  isChosenInThisPage,
  hasNoHistory,
  kernelOf,
  notebooksOf,
  saveRequest,
  savedRequest
} from '../notebooks';
import { KernelRequest } from '../schema';
import { IGpuShare } from '../tokens';

export interface IRestoredRequest {
  readonly panel: NotebookPanel;
  readonly request: KernelRequest;
}

export class SavedRequests {
  constructor(
    private readonly gpushare: IGpuShare,
    notebooks: INotebookTracker,
    private readonly isWanted: () => boolean
  ) {
    gpushare.chosen.connect((_, { kernelId, request }) => {
      this.seen.add(kernelId); // before the change arrives, so that it is not requested twice
      notebooksOf(notebooks, kernelId).forEach(panel => saveRequest(panel, request));
    });
    gpushare.changed.connect(() => notebooks.forEach(panel => this.look(panel)));
  }

  /** Emitted after a saved share was requested. */
  get requested(): ISignal<this, IRestoredRequest> {
    return this._requested;
  }

  /** Check a notebook when it is loaded, and again for each new kernel. */
  follow(panel: NotebookPanel): void {
    void panel.context.ready.then(() => this.look(panel));
    panel.sessionContext.kernelChanged.connect(() => this.look(panel));
  }

  private look(panel: NotebookPanel): void {
    const kernel = kernelOf(panel, this.gpushare.state);
    if (kernel === null || !panel.context.isReady || this.seen.has(kernel.kernel_id)) {
      return;
    }
    const request = savedRequest(panel);
    if (request === null && hasNoHistory(kernel)) {
      return; // a new notebook may be given a share in a moment
    }
    this.seen.add(kernel.kernel_id);
    if (request !== null && hasNoHistory(kernel) && this.isWanted()) {
      const isNews = !isChosenInThisPage(panel);
      void this.gpushare
        .request(kernel.kernel_id, request)
        .then(accepted => accepted && isNews && this._requested.emit({ panel, request }));
    }
  }

  private readonly seen = new Set<string>();
  private readonly _requested = new Signal<this, IRestoredRequest>(this);
}
