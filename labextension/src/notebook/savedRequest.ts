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
      this.handled.add(kernelId); // before the change arrives, so that it is not requested twice
      notebooksOf(notebooks, kernelId).forEach(panel => saveRequest(panel, request));
    });
    gpushare.changed.connect(() => notebooks.forEach(panel => this.check(panel)));
  }

  /** Emitted after a saved share was requested. */
  get requested(): ISignal<this, IRestoredRequest> {
    return this._requested;
  }

  /** Check a notebook when it is loaded, and again for each new kernel. */
  follow(panel: NotebookPanel): void {
    void panel.context.ready.then(() => this.check(panel));
    panel.sessionContext.kernelChanged.connect(() => this.check(panel));
  }

  private check(panel: NotebookPanel): void {
    const kernel = kernelOf(panel, this.gpushare.state);
    if (kernel === null || !panel.context.isReady || this.handled.has(kernel.kernel_id)) {
      return;
    }
    const request = savedRequest(panel);
    if (request === null && hasNoHistory(kernel)) {
      return; // a new notebook may be given a share in a moment
    }
    this.handled.add(kernel.kernel_id);
    if (request !== null && hasNoHistory(kernel) && this.isWanted()) {
      const isFromFile = !isChosenInThisPage(panel);
      void this.gpushare
        .request(kernel.kernel_id, request)
        .then(accepted => accepted && isFromFile && this._requested.emit({ panel, request }));
    }
  }

  private readonly handled = new Set<string>();
  private readonly _requested = new Signal<this, IRestoredRequest>(this);
}
