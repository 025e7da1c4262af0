/** Which kernels a person restarted: losing their GPU memory is no error then. */
import { INotebookTracker } from '@jupyterlab/notebook';

import { kernelIdOf } from '../notebooks';

/** An event of the old process may arrive this long after the restart. */
const RECENT_MS = 15_000;

export class Restarts {
  constructor(notebooks: INotebookTracker | null) {
    notebooks?.widgetAdded.connect((_, panel) =>
      panel.sessionContext.statusChanged.connect((_, status) => {
        const id = kernelIdOf(panel);
        if (status === 'restarting' && id !== null) {
          this.times.set(id, Date.now());
        }
      })
    );
  }

  isRecent(kernelId: string): boolean {
    return Date.now() - (this.times.get(kernelId) ?? -Infinity) < RECENT_MS;
  }

  private readonly times = new Map<string, number>();
}
