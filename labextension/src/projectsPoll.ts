/** Polls the projects while they are visible, and refreshes when one of my kernels changes. */
import { Poll } from '@lumino/polling';

import { Projects, Status } from './schema';
import { Fact } from './state';
import { errorText } from './apiClient';

const INTERVAL_MS = 20_000;
const MAX_INTERVAL_MS = 120_000;
/** A lease changes in several frames. */
const SETTLE_MS = 250;

export class ProjectsPoll {
  constructor(ask: () => Promise<Projects>, apply: (fact: Fact) => void) {
    this.poll = new Poll({
      auto: false,
      name: 'jupyter-gpushare:projects',
      frequency: { interval: INTERVAL_MS, backoff: true, max: MAX_INTERVAL_MS },
      standby: 'when-hidden',
      factory: async () => {
        try {
          apply({ type: 'projects', rows: (await ask()).projects });
        } catch (error) {
          apply({ type: 'projectsFailed', problem: errorText(error) });
          throw error; // the poll backs off
        }
      }
    });
  }

  addWatcher(): void {
    this.watchers += 1;
    if (this.watchers === 1) {
      void this.poll.refresh(); // also starts the interval
    }
  }

  removeWatcher(): void {
    this.watchers -= 1;
    if (this.watchers === 0) {
      void this.poll.stop();
    }
  }

  /** Refresh when the workloads of my kernels changed. */
  refreshOnChange(before: Status | null, after: Status | null): void {
    if (
      this.watchers > 0 &&
      this.timer === null &&
      before !== null &&
      dependencies(before) !== dependencies(after)
    ) {
      this.timer = window.setTimeout(() => {
        this.timer = null;
        if (this.watchers > 0) {
          void this.poll.refresh();
        }
      }, SETTLE_MS);
    }
  }

  private readonly poll: Poll;
  private watchers = 0;
  private timer: number | null = null;
}

/** Everything that the table depends on, as a text to compare. */
function dependencies(status: Status | null): string {
  const kernels = (status?.kernels ?? []).map(kernel => `${kernel.workload} ${kernel.state}`);
  return [status?.scheduler.reachable, ...kernels].join();
}
