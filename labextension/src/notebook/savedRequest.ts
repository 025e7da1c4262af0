/** A notebook remembers the share that was chosen for it, and asks for it when it is opened again. */
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
      this.seen.add(kernelId); // before its news arrive: what was just asked is not asked again
      notebooksOf(notebooks, kernelId).forEach(panel => saveRequest(panel, request));
    });
    gpushare.changed.connect(() => notebooks.forEach(panel => this.look(panel)));
  }

  /** After the share was asked for that a notebook came with. */
  get asked(): ISignal<this, IRestoredRequest> {
    return this._asked;
  }

  /** Look at a notebook as soon as it can be read. */
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
      return; // a notebook that is just being made may be given one in a moment
    }
    this.seen.add(kernel.kernel_id);
    if (request !== null && hasNoHistory(kernel) && this.isWanted()) {
      const isNews = !isChosenInThisPage(panel);
      void this.gpushare
        .request(kernel.kernel_id, request)
        .then(accepted => accepted && isNews && this._asked.emit({ panel, request }));
    }
  }

  private readonly seen = new Set<string>();
  private readonly _asked = new Signal<this, IRestoredRequest>(this);
}
