/**
 * Keeps the table of projects true while somebody looks at it: asked anew when a kernel of mine changed hands, and now and
 * then for what others did. Nothing is asked while nobody looks or the page is hidden.
 */
import { Poll } from '@lumino/polling';

import { Projects, Status } from './schema';
import { Fact } from './state';
import { errorText } from './apiClient';

const INTERVAL_MS = 20_000;
const MAX_INTERVAL_MS = 120_000;
/** A change of a lease comes in several frames. */
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

  begin(): void {
    this.watchers += 1;
    if (this.watchers === 1) {
      void this.poll.refresh(); // also starts the interval
    }
  }

  end(): void {
    this.watchers -= 1;
    if (this.watchers === 0) {
      void this.poll.stop();
    }
  }

  /** Ask anew when what my kernels hold or want is not what it was. */
  follow(before: Status | null, after: Status | null): void {
    if (
      this.watchers > 0 &&
      this.timer === null &&
      before !== null &&
      held(before) !== held(after)
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

/** What the table depends on, as a text to compare: also whether there is a scheduler to ask. */
function held(status: Status | null): string {
  const kernels = (status?.kernels ?? []).map(kernel => `${kernel.workload} ${kernel.state}`);
  return [status?.scheduler.reachable, ...kernels].join();
}
