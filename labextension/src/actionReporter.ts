/** Shows the outcome of the actions that a notice offers as notifications. */
import { Notification } from '@jupyterlab/apputils';
import { TranslationBundle } from '@jupyterlab/translation';

import { outcomeOf } from './outcomes';
import { Kernel } from './schema';
import { IActionResult, IGpuShare } from './tokens';

const DECIDE_MS = 8000;
const SHOWN_MS = 15_000;

export function reportActions(gpushare: IGpuShare, trans: TranslationBundle): void {
  gpushare.acted.connect((_, result) => report(gpushare, result, trans));
}

function report(gpushare: IGpuShare, result: IActionResult, trans: TranslationBundle): void {
  const current = (): Kernel | null =>
    gpushare.state.status?.kernels.find(one => one.kernel_id === result.kernel.kernel_id) ?? null;
  const decide = (isFinal: boolean): void => {
    const outcome = outcomeOf(result, current(), isFinal, trans);
    if (outcome === 'undecided') {
      return;
    }
    gpushare.changed.disconnect(onChange);
    window.clearTimeout(timer);
    if (outcome !== null) {
      Notification.emit(outcome.text, outcome.tone, { autoClose: SHOWN_MS });
    }
  };
  const onChange = (): void => decide(false);
  const timer = window.setTimeout(() => decide(true), DECIDE_MS);
  gpushare.changed.connect(onChange);
  decide(false);
}
