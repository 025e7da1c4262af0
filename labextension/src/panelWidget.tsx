/** The panel as a Lumino widget: it draws when the state changed and somebody can see it. */
import { ReactWidget } from '@jupyterlab/apputils';
import { TranslationBundle } from '@jupyterlab/translation';
import { Message } from '@lumino/messaging';
import * as React from 'react';

import { gpuIcon } from './icon';
import { Kernel } from './schema';
import { IGpuShare } from './tokens';
import { Panel } from './views/panel';

export class GpuSharePanel extends ReactWidget {
  constructor(
    private readonly gpushare: IGpuShare,
    private readonly openNotebook: (path: string) => void,
    private readonly trans: TranslationBundle
  ) {
    super();
    this.id = 'jupyter-gpushare';
    this.addClass('jp-GpuShare');
    this.title.icon = gpuIcon;
    this.title.caption = trans.__('GPU share');
    this.node.setAttribute('role', 'region');
    this.node.setAttribute('aria-label', trans.__('GPU share'));
    gpushare.changed.connect(this.redraw, this);
  }

  dispose(): void {
    this.gpushare.changed.disconnect(this.redraw, this);
    super.dispose();
  }

  protected onAfterShow(msg: Message): void {
    super.onAfterShow(msg);
    this.update();
  }

  protected render(): JSX.Element {
    return (
      <Panel
        state={this.gpushare.state}
        trans={this.trans}
        onRequest={(id, request) => void this.gpushare.request(id, request)}
        onAct={(id, action) => void this.gpushare.act(id, action)}
        onDismiss={id => this.gpushare.dismiss(id)}
        onOpen={(kernel: Kernel) => kernel.name !== '' && this.openNotebook(kernel.name)}
        onRetry={() => this.gpushare.retry()}
      />
    );
  }

  private redraw(): void {
    if (this.isVisible) {
      this.update(); // Lumino folds several of these into one drawing
    }
  }
}
