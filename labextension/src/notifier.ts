/** Tells people about events of their kernels in JupyterLab's own notifications; a notice counts down in place. */
import { Notification } from '@jupyterlab/apputils';
import { TranslationBundle } from '@jupyterlab/translation';

import { countdown, messageOf } from './messages';
import { Kernel } from './schema';
import { INews } from './state';
import { IGpuShare } from './tokens';

const SHOWN_MS = 15_000;

export class Notifier {
  constructor(
    private readonly gpushare: IGpuShare,
    private readonly showPanel: () => void,
    private readonly trans: TranslationBundle
  ) {
    gpushare.news.connect((_, item) => this.tell(item));
    gpushare.changed.connect(() => this.follow());
  }

  private tell(item: INews): void {
    const message = messageOf(item, this.trans);
    if (message === null || item.event.kind === 'notice') {
      return; // a notice is told by its countdown, which ends when the notice does
    }
    Notification.emit(message.text, message.tone, { autoClose: SHOWN_MS, actions: [this.show()] });
  }

  /** Begin, continue or end the countdowns as the kernels' deadlines say. */
  private follow(): void {
    const kernels = this.gpushare.state.status?.kernels ?? [];
    const announced = kernels.filter(kernel => kernel.notice_deadline !== null);
    announced.forEach(kernel => this.count(kernel));
    const still = new Set(announced.map(kernel => kernel.kernel_id));
    [...this.open.keys()].filter(id => !still.has(id)).forEach(id => this.end(id));
    this.wind();
  }

  private count(kernel: Kernel): void {
    const text = countdown(kernel, Date.now(), this.trans);
    const known = this.open.get(kernel.kernel_id);
    if (text === null) {
      this.end(kernel.kernel_id);
    } else if (known !== undefined) {
      Notification.update({ id: known, message: text });
    } else {
      const release = {
        label: this.trans.__('Release now'),
        callback: () => void this.gpushare.act(kernel.kernel_id, 'release')
      };
      this.open.set(
        kernel.kernel_id,
        Notification.emit(text, 'warning', { autoClose: false, actions: [release, this.show()] })
      );
    }
  }

  private end(kernelId: string): void {
    const known = this.open.get(kernelId);
    if (known !== undefined) {
      this.open.delete(kernelId);
      Notification.dismiss(known);
    }
  }

  /** The second hand runs only while something counts down. */
  private wind(): void {
    if (this.open.size > 0 && this.hand === null) {
      this.hand = window.setInterval(() => this.follow(), 1000);
    } else if (this.open.size === 0 && this.hand !== null) {
      window.clearInterval(this.hand);
      this.hand = null;
    }
  }

  private show(): Notification.IAction {
    return { label: this.trans.__('Show GPU share'), callback: this.showPanel };
  }

  private readonly open = new Map<string, string>();
  private hand: number | null = null;
}
