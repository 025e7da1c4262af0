/** A notice between toolbar and cells while GPU memory is about to be reclaimed. */
import { ReactWidget } from '@jupyterlab/apputils';
import { NotebookPanel } from '@jupyterlab/notebook';
import { TranslationBundle } from '@jupyterlab/translation';
import { Message } from '@lumino/messaging';
import { Widget } from '@lumino/widgets';
import * as React from 'react';

import { kernelOf } from '../notebooks';
import { IGpuShare } from '../tokens';
import { Notice } from '../views/notice';

export class NoticeBanner extends ReactWidget {
  constructor(
    private readonly gpushare: IGpuShare,
    private readonly panel: NotebookPanel,
    private readonly ask: () => void,
    private readonly trans: TranslationBundle
  ) {
    super();
    this.addClass('jp-GpuShare');
    this.addClass('jp-GpuShare-banner');
    this.hide();
    gpushare.changed.connect(this.follow, this);
    this.follow();
  }

  dispose(): void {
    this.gpushare.changed.disconnect(this.follow, this);
    super.dispose();
  }

  protected render(): JSX.Element | null {
    const kernel = kernelOf(this.panel, this.gpushare.state);
    return kernel === null || kernel.notice_deadline === null ? null : (
      <Notice
        kernel={kernel}
        deadline={kernel.notice_deadline}
        onAct={(id, action) => void this.gpushare.act(id, action)}
        onAsk={this.ask}
        trans={this.trans}
      />
    );
  }

  protected onUpdateRequest(msg: Message): void {
    super.onUpdateRequest(msg);
    void this.renderPromise?.then(() => this.measure());
  }

  protected onResize(msg: Widget.ResizeMessage): void {
    super.onResize(msg);
    this.measure();
  }

  /** A notebook's header gives widgets only their minimum height, which must be set for text. */
  private measure(): void {
    const content = this.node.firstElementChild as HTMLElement | null;
    const height = `${content?.offsetHeight ?? 0}px`;
    if (this.node.style.minHeight !== height) {
      this.node.style.minHeight = height;
      this.parent?.fit();
    }
  }

  private follow(): void {
    const kernel = kernelOf(this.panel, this.gpushare.state);
    this.setHidden(kernel === null || kernel.notice_deadline === null);
    this.update();
  }
}
