/** The state of the front end, updated by the API client. */
import { DisposableDelegate, IDisposable } from '@lumino/disposable';
import { ISignal, Signal } from '@lumino/signaling';

import { ProjectsPoll } from './projectsPoll';
import { sameRequest } from './sameRequest';
import { Kernel, KernelRequest, Status, StreamFrame, WhatIfAnswer } from './schema';
import { Action, Fact, INITIAL, IKernelEvent, IState, news, reduce } from './state';
import { IActionResult, IChoice, IGpuShare } from './tokens';
import { errorText, IStreamListener, RequestError, ApiClient } from './apiClient';

export class GpuShare implements IGpuShare, IStreamListener {
  constructor(
    makeClient: (listener: IStreamListener) => ApiClient = listener => new ApiClient(listener)
  ) {
    this.client = makeClient(this);
    this.projects = new ProjectsPoll(
      () => this.client.projects(),
      fact => this.apply(fact)
    );
    this.client.start();
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

  get news(): ISignal<this, IKernelEvent> {
    return this._news;
  }

  get chosen(): ISignal<this, IChoice> {
    return this._chosen;
  }

  get acted(): ISignal<this, IActionResult> {
    return this._acted;
  }

  async request(kernelId: string, body: KernelRequest): Promise<boolean> {
    const accepted = await this.ask(kernelId, 'request', () => this.client.request(kernelId, body));
    if (accepted) {
      this._chosen.emit({ kernelId, request: body });
    }
    return accepted;
  }

  async act(kernelId: string, action: Exclude<Action, 'request'>): Promise<boolean> {
    const before = this.kernel(kernelId);
    const accepted = await this.ask(kernelId, action, () => this.carryOut(kernelId, action));
    if (accepted && action === 'cancel' && before !== undefined) {
      this._chosen.emit({ kernelId, request: sameRequest(before) });
    }
    if (accepted && action === 'release') {
      this._chosen.emit({ kernelId, request: null });
    }
    return accepted;
  }

  whatIf(body: KernelRequest, kernelId?: string): Promise<WhatIfAnswer> {
    return this.client.whatIf(body, kernelId);
  }

  watchProjects(): IDisposable {
    this.projects.addWatcher();
    return new DisposableDelegate(() => this.projects.removeWatcher());
  }

  setDefaultShare(share: string): void {
    if (share !== this._state.defaultShare) {
      this.apply({ type: 'defaultShare', share });
    }
  }

  dismiss(kernelId: string): void {
    this.apply({ type: 'dismissed', kernelId });
  }

  retry(): void {
    this.client.retry();
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

  private async carryOut(kernelId: string, action: Exclude<Action, 'request'>): Promise<unknown> {
    switch (action) {
      case 'release':
        return this.client.release(kernelId);
      case 'move': // the driver restores the memory on a GPU with room
        await this.client.act(kernelId, 'suspend');
        return this.client.act(kernelId, 'resume');
      default:
        return this.client.act(kernelId, action);
    }
  }

  private async ask(
    kernelId: string,
    action: Action,
    call: () => Promise<unknown>
  ): Promise<boolean> {
    const before = this.kernel(kernelId);
    const finish = (error: string | null) =>
      before !== undefined && this._acted.emit({ kernel: before, action, error });
    this.apply({ type: 'asked', kernelId, action });
    try {
      await call();
      this.apply({ type: 'answered', kernelId });
      finish(null);
      return true;
    } catch (error) {
      const field = error instanceof RequestError ? error.field : null;
      this.apply({
        type: 'refused',
        kernelId,
        action,
        refusal: { message: errorText(error), field }
      });
      finish(errorText(error));
      return false;
    }
  }

  private kernel(kernelId: string): Kernel | undefined {
    return this._state.status?.kernels.find(one => one.kernel_id === kernelId);
  }

  private apply(fact: Fact): void {
    const before = this._state;
    this._state = reduce(before, fact);
    if (this._state !== before) {
      this.projects.refreshOnChange(before.status, this._state.status);
      this._changed.emit();
      news(before, this._state).forEach(item => this._news.emit(item));
    }
  }

  private readonly client: ApiClient;
  private readonly projects: ProjectsPoll;
  private _state: IState = INITIAL;
  private readonly _changed = new Signal<this, void>(this);
  private readonly _news = new Signal<this, IKernelEvent>(this);
  private readonly _acted = new Signal<this, IActionResult>(this);
  private readonly _chosen = new Signal<this, IChoice>(this);
}
