/** The dialog for a new notebook with a share. */
import { Dialog, ReactWidget } from '@jupyterlab/apputils';
import { KernelSpec } from '@jupyterlab/services';
import { TranslationBundle } from '@jupyterlab/translation';
import { IDisposable } from '@lumino/disposable';
import { Message } from '@lumino/messaging';
import * as React from 'react';

import { KernelRequest } from '../schema';
import { IGpuShare } from '../tokens';
import { StartForm } from '../views/startForm';

export interface IStart {
  readonly kernel: string;
  readonly request: KernelRequest;
}

/** The chosen kernel and share; null when cancelled. */
export async function showStartDialog(
  gpushare: IGpuShare,
  kernelspecs: KernelSpec.IManager,
  trans: TranslationBundle
): Promise<IStart | null> {
  await kernelspecs.ready;
  let result: IStart | null = null;
  const close = (start: IStart | null) => {
    result = start;
    dialog.reject();
  };
  const dialog = new Dialog<unknown>({
    title: trans.__('New notebook with a GPU share'),
    body: new StartBody(gpushare, kernelspecs, close, trans),
    buttons: [], // the form has its own
    hasClose: true,
    focusNodeSelector: '[aria-pressed="true"], .jp-GpuShare-amount input'
  });
  await dialog.launch();
  return result;
}

class StartBody extends ReactWidget {
  constructor(
    private readonly gpushare: IGpuShare,
    private readonly kernelspecs: KernelSpec.IManager,
    private readonly onClose: (start: IStart | null) => void,
    private readonly trans: TranslationBundle
  ) {
    super();
    this.addClass('jp-GpuShare');
    this.addClass('jp-GpuShare-start');
    this.projectsWatch = gpushare.watchProjects();
    gpushare.changed.connect(this.update, this);
  }

  dispose(): void {
    this.gpushare.changed.disconnect(this.update, this);
    this.projectsWatch.dispose();
    super.dispose();
  }

  /** Enter submits the form; dialogs of JupyterLab 4.2 would press a button of their own. */
  handleEvent(event: Event): void {
    if ((event as KeyboardEvent).key === 'Enter' && this.node.contains(event.target as Node)) {
      event.stopPropagation();
    }
  }

  protected onAfterAttach(msg: Message): void {
    super.onAfterAttach(msg);
    document.addEventListener('keydown', this, true);
  }

  protected onBeforeDetach(msg: Message): void {
    document.removeEventListener('keydown', this, true);
    super.onBeforeDetach(msg);
  }

  protected render(): JSX.Element {
    const specs = this.kernelspecs.specs;
    return (
      <StartForm
        state={this.gpushare.state}
        kernels={Object.values(specs?.kernelspecs ?? {}).flatMap(spec =>
          spec === undefined ? [] : [spec]
        )}
        firstKernel={specs?.default ?? ''}
        onWhatIf={request => this.gpushare.whatIf(request)}
        onStart={(kernel, request) => this.onClose({ kernel, request })}
        onCancel={() => this.onClose(null)}
        onRetry={() => this.gpushare.retry()}
        trans={this.trans}
      />
    );
  }

  private readonly projectsWatch: IDisposable;
}
