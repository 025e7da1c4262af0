/** State, kept true by the wire and changed by facts only. */
import { ISignal, Signal } from '@lumino/signaling';

import { KernelRequest, Status, StreamFrame } from './schema';
import { Action, Fact, INITIAL, INews, IState, news, reduce } from './state';
import { IGpuShare } from './tokens';
import { describe, IWireListener, Refused, Wire } from './wire';

export class GpuShare implements IGpuShare, IWireListener {
  constructor(makeWire: (listener: IWireListener) => Wire = listener => new Wire(listener)) {
    this.wire = makeWire(this);
    this.wire.start();
  }

  get state(): IState {
    return this._state;
  }

  get revision(): number | null {
    return this._state.revision;
  }

  get changed(): ISignal<this, void> {
    return this._changed;
  }

  get news(): ISignal<this, INews> {
    return this._news;
  }

  request(kernelId: string, body: KernelRequest): Promise<void> {
    return this.ask(kernelId, 'request', () => this.wire.request(kernelId, body));
  }

  act(kernelId: string, action: Exclude<Action, 'request'>): Promise<void> {
    return this.ask(kernelId, action, () =>
      action === 'release' ? this.wire.release(kernelId) : this.wire.act(kernelId, action)
    );
  }

  dismiss(kernelId: string): void {
    this.apply({ type: 'dismissed', kernelId });
  }

  retry(): void {
    this.wire.retry();
  }

  onSnapshot(status: Status): void {
    this.apply({ type: 'snapshot', status });
  }

  onFrame(frame: StreamFrame): void {
    this.apply({ type: 'frame', frame });
  }

  onDisconnected(problem: string): void {
    this.apply({ type: 'disconnected', at: Date.now(), problem });
  }

  private async ask(kernelId: string, action: Action, call: () => Promise<unknown>): Promise<void> {
    this.apply({ type: 'asked', kernelId, action });
    try {
      await call();
      this.apply({ type: 'answered', kernelId });
    } catch (error) {
      const field = error instanceof Refused ? error.field : null;
      this.apply({ type: 'refused', kernelId, action, refusal: { message: describe(error), field } });
    }
  }

  private apply(fact: Fact): void {
    const before = this._state;
    this._state = reduce(before, fact);
    if (this._state !== before) {
      this._changed.emit();
      news(before, this._state).forEach(item => this._news.emit(item));
    }
  }

  private readonly wire: Wire;
  private _state: IState = INITIAL;
  private readonly _changed = new Signal<this, void>(this);
  private readonly _news = new Signal<this, INews>(this);
}
