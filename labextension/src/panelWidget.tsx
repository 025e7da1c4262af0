/** The sidebar panel as a Lumino widget: it renders only while it is visible. */
import { ReactWidget } from '@jupyterlab/apputils';
import { TranslationBundle } from '@jupyterlab/translation';
import { IDisposable } from '@lumino/disposable';
import { Message } from '@lumino/messaging';
import * as React from 'react';

import { kernelName } from './format';
import { gpuIcon } from './icon';
import { Kernel } from './schema';
import { IGpuShare } from './tokens';
import { IKernelActions } from './views/kernelCard';
import { Panel } from './views/panel';

/** Hides the content, so that nothing in it shifts in sight. */
const STALE = 'jp-GpuShare-stale';

/** The actions of kernel views. Created once, so that memoized cards do not render again. */
export function kernelActions(
  gpushare: IGpuShare,
  openNotebook: (path: string) => void
): IKernelActions {
  return {
    onRequest: (id, request) => void gpushare.request(id, request),
    onAct: (id, action) => void gpushare.act(id, action),
    onWhatIf: (request, kernelId) => gpushare.whatIf(request, kernelId),
    onDismiss: id => gpushare.dismiss(id),
    onOpen: (kernel: Kernel) => kernel.name !== '' && openNotebook(kernel.name),
    nameOf: kernelId => {
      const kernel = gpushare.state.status?.kernels.find(one => one.kernel_id === kernelId);
      return kernel === undefined ? null : kernelName(kernel);
    }
  };
}

interface IOptions {
  readonly gpushare: IGpuShare;
  readonly openNotebook: (path: string) => void;
  readonly openDashboard: () => void;
  /** Whether the dashboard command exists; it may be registered later. */
  readonly hasDashboard: () => boolean;
  readonly trans: TranslationBundle;
}

export class GpuSharePanel extends ReactWidget {
  constructor(private readonly options: IOptions) {
    super();
    const { gpushare, openNotebook, trans } = options;
    this.actions = kernelActions(gpushare, openNotebook);
    this.id = 'jupyter-gpushare';
    this.addClass('jp-GpuShare');
    this.title.icon = gpuIcon;
    this.title.caption = trans.__('GPU share');
    this.node.setAttribute('role', 'region');
    this.node.setAttribute('aria-label', trans.__('GPU share'));
    gpushare.changed.connect(this.redraw, this);
  }

  dispose(): void {
    this.options.gpushare.changed.disconnect(this.redraw, this);
    this.watching?.dispose();
    super.dispose();
  }

  /** What was rendered before is out of date: it stays invisible until it is rendered again. */
  protected onBeforeShow(msg: Message): void {
    this.addClass(STALE);
    super.onBeforeShow(msg);
  }

  protected onAfterShow(msg: Message): void {
    super.onAfterShow(msg);
    this.watching ??= this.options.gpushare.watchProjects();
    this.update();
  }

  protected onAfterHide(msg: Message): void {
    super.onAfterHide(msg);
    this.watching?.dispose();
    this.watching = null;
  }

  protected onAfterAttach(msg: Message): void {
    super.onAfterAttach(msg);
    if (this.isVisible) {
      this.watching ??= this.options.gpushare.watchProjects();
    }
  }

  protected render(): JSX.Element {
    const { gpushare, hasDashboard, openDashboard, trans } = this.options;
    return (
      <Panel
        state={gpushare.state}
        trans={trans}
        {...this.actions}
        onRetry={() => gpushare.retry()}
        onDashboard={hasDashboard() ? openDashboard : undefined}
        onRendered={() => this.showContent()}
      />
    );
  }

  private showContent(): void {
    if (this.hasClass(STALE)) {
      this.removeClass(STALE);
    }
  }

  private redraw(): void {
    if (this.isVisible) {
      this.update(); // Lumino merges several updates into one
    }
  }

  private readonly actions: IKernelActions;
  private watching: IDisposable | null = null;
}
