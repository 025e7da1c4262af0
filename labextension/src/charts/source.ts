/** The measurements, polled while a chart is visible. */
import { ServerConnection } from '@jupyterlab/services';
import { DisposableDelegate, IDisposable } from '@lumino/disposable';
import { Poll } from '@lumino/polling';
import { ISignal, Signal } from '@lumino/signaling';

import { errorText, rest } from '../apiClient';
import { Kernel, KernelHistory, NodeHistory, ROUTES } from '../schema';
import { IGpuShare } from '../tokens';
import { addNodes, addPast, addPresent, Track } from './measurements';

const INTERVAL_MS = 5000;
const MAX_INTERVAL_MS = 60_000;
/** Charts that were hidden for longer ask the server for what they missed. */
const GAP_S = 15;

export class ChartSource {
  constructor(
    private readonly gpushare: IGpuShare,
    private readonly settings: ServerConnection.ISettings = ServerConnection.makeSettings()
  ) {
    this.poll = new Poll({
      name: 'jupyter-gpushare:charts',
      auto: false,
      factory: () => this.refresh(),
      frequency: { interval: INTERVAL_MS, backoff: true, max: MAX_INTERVAL_MS },
      standby: 'when-hidden'
    });
  }

  /** GPUs and machines, which have common times. */
  nodes = new Track();
  /** By kernel. */
  readonly notebooks = new Map<string, Track>();
  /** GPUs beyond those that fit into one answer. */
  leftOut = 0;
  /** Why the measurements may be old. */
  problem: string | null = null;

  /** Emitted after every poll. */
  get changed(): ISignal<this, void> {
    return this._changed;
  }

  /** The only node that is shown; "": all. */
  get node(): string {
    return this._node;
  }

  showNode(node: string): void {
    if (node !== this._node) {
      this._node = node;
      this.nodes = new Track();
      this.since = null;
      this._changed.emit();
      void this.poll.refresh();
    }
  }

  /** Poll until the result is disposed. */
  watch(): IDisposable {
    this.watchers += 1;
    if (this.watchers === 1) {
      void this.poll.start().then(() => this.poll.refresh());
    }
    return new DisposableDelegate(() => {
      this.watchers -= 1;
      if (this.watchers === 0) {
        void this.poll.stop();
      }
    });
  }

  private async refresh(): Promise<void> {
    try {
      await Promise.all([this.refreshNodes(), this.refreshNotebooks()]);
      this.problem = null;
    } catch (error) {
      this.problem = errorText(error);
      throw error; // the poll backs off
    } finally {
      this._changed.emit();
    }
  }

  private async refreshNodes(): Promise<void> {
    const node = this._node;
    const query = {
      ...(this.since === null ? {} : { since: this.since }),
      ...(node === '' ? {} : { node })
    };
    const answer = await this.get<NodeHistory>(ROUTES.nodeHistory, { query });
    if (node === this._node) {
      addNodes(this.nodes, answer);
      this.leftOut = answer.left_out;
      this.since = answer.times[answer.times.length - 1] ?? this.since;
    }
  }

  private async refreshNotebooks(): Promise<void> {
    const kernels = this.gpushare.state.status?.kernels ?? [];
    const ids = new Set(kernels.map(kernel => kernel.kernel_id));
    [...this.notebooks.keys()].filter(id => !ids.has(id)).forEach(id => this.notebooks.delete(id));
    await Promise.all(kernels.map(kernel => this.refreshNotebook(kernel)));
  }

  private async refreshNotebook(kernel: Kernel): Promise<void> {
    const now = Date.now() / 1000;
    const known = this.notebooks.get(kernel.kernel_id);
    if (known !== undefined && now - known.times.newest < GAP_S) {
      addPresent(known, kernel, now);
      return;
    }
    const track = new Track();
    addPast(
      track,
      kernel,
      await this.get<KernelHistory>(ROUTES.kernelHistory, {
        names: { kernel_id: kernel.kernel_id },
        query: { minutes: '60' }
      })
    );
    this.notebooks.set(kernel.kernel_id, track);
  }

  private async get<T>(
    route: { verb: string; path: string },
    call: Parameters<typeof rest>[2]
  ): Promise<T> {
    return JSON.parse(await rest(this.settings, route, call)) as T;
  }

  private readonly poll: Poll<void>;
  private readonly _changed = new Signal<this, void>(this);
  private watchers = 0;
  private since: string | null = null;
  private _node = '';
}
