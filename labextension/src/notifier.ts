/** Shows kernel events as JupyterLab notifications; a notice counts down in place. */
import { Notification } from '@jupyterlab/apputils';
import { TranslationBundle } from '@jupyterlab/translation';

import { countdown, messageOf, notificationKind, NotificationKind } from './messages';
import { Kernel } from './schema';
import { IKernelEvent } from './state';
import { IGpuShare } from './tokens';

const SHOWN_MS = 15_000;
/** The end of a process is known before its reason: a restart, a shutdown or a crash. */
const LOST_DELAY_MS = 3000;

interface IOptions {
  readonly gpushare: IGpuShare;
  readonly showPanel: () => void;
  /** Whether a notebook of this kernel is visible and shows the notice itself. */
  readonly isInSight: (kernelId: string) => boolean;
  /** Whether a person restarted this kernel just now. */
  readonly isRestarted: (kernelId: string) => boolean;
  /** Whether notifications of this kind are switched on. */
  readonly isWanted: (kind: NotificationKind) => boolean;
  readonly trans: TranslationBundle;
}

export class Notifier {
  constructor(private readonly options: IOptions) {
    this.gpushare = options.gpushare;
    this.trans = options.trans;
    this.gpushare.news.connect((_, item) => this.notify(item));
    this.gpushare.changed.connect(() => this.updateCountdowns());
  }

  private notify(item: IKernelEvent): void {
    const message = messageOf(item, this.trans);
    const kind = notificationKind(item.event.kind);
    // a notice is shown by its countdown, which ends with it
    if (message === null || kind === null || kind === 'notice' || !this.options.isWanted(kind)) {
      return;
    }
    const show = () => {
      const id = item.kernel.kernel_id;
      const earlier = this.moves.get(id);
      const shown = Notification.emit(message.text, message.tone, {
        autoClose: SHOWN_MS,
        actions: [this.show()]
      });
      if (item.event.kind === 'moved') {
        this.moves.set(id, shown);
        if (earlier !== undefined) {
          Notification.dismiss(earlier); // it names the GPU that the kernel has left again
        }
      }
    };
    if (item.event.kind === 'lost') {
      window.setTimeout(() => this.isEndedByUser(item.kernel.kernel_id) || show(), LOST_DELAY_MS);
    } else {
      show();
    }
  }

  /** Shutting a kernel down and restarting it lose GPU memory too, and are no errors. */
  private isEndedByUser(kernelId: string): boolean {
    const kernels = this.gpushare.state.status?.kernels ?? [];
    const isGone = !kernels.some(kernel => kernel.kernel_id === kernelId);
    return isGone || this.options.isRestarted(kernelId);
  }

  /** Start, update or end the countdowns. */
  private updateCountdowns(): void {
    const kernels = this.gpushare.state.status?.kernels ?? [];
    const withNotice = kernels.filter(
      kernel => kernel.notice_deadline !== null && this.options.isWanted('notice')
    );
    const hidden = withNotice.filter(kernel => !this.options.isInSight(kernel.kernel_id));
    hidden.forEach(kernel => this.showCountdown(kernel));
    const active = new Set(hidden.map(kernel => kernel.kernel_id));
    [...this.countdowns.keys()].filter(id => !active.has(id)).forEach(id => this.endCountdown(id));
    this.setTimer(withNotice.length > 0);
  }

  private showCountdown(kernel: Kernel): void {
    const text = countdown(kernel, Date.now(), this.trans);
    const known = this.countdowns.get(kernel.kernel_id);
    if (text === null) {
      this.endCountdown(kernel.kernel_id);
    } else if (known !== undefined) {
      Notification.update({ id: known, message: text });
    } else {
      const choice = (action: 'suspend' | 'move', label: string) => ({
        label,
        callback: () => void this.gpushare.act(kernel.kernel_id, action)
      });
      const save = choice('suspend', this.trans.__('Suspend now'));
      const move = choice('move', this.trans.__('Move now'));
      this.countdowns.set(
        kernel.kernel_id,
        Notification.emit(text, 'warning', { autoClose: false, actions: [save, move] })
      );
    }
  }

  private endCountdown(kernelId: string): void {
    const known = this.countdowns.get(kernelId);
    if (known !== undefined) {
      this.countdowns.delete(kernelId);
      Notification.dismiss(known);
    }
  }

  /** The timer runs only while something counts down; a notebook may be hidden meanwhile. */
  private setTimer(counting: boolean): void {
    if (counting && this.timer === null) {
      this.timer = window.setInterval(() => this.updateCountdowns(), 1000);
    } else if (!counting && this.timer !== null) {
      window.clearInterval(this.timer);
      this.timer = null;
    }
  }

  private show(): Notification.IAction {
    return { label: this.trans.__('Show GPU share'), callback: this.options.showPanel };
  }

  private readonly gpushare: IGpuShare;
  private readonly trans: TranslationBundle;
  private readonly countdowns = new Map<string, string>();
  /** The last notification of a move, by kernel. */
  private readonly moves = new Map<string, string>();
  private timer: number | null = null;
}
