/** A notice that memory will be reclaimed, with a countdown and actions. */
import { TranslationBundle } from '@jupyterlab/translation';
import * as React from 'react';

import { timeLeft } from '../format';
import { Event, Kernel } from '../schema';
import { Act } from './actions';

interface INoticeProps {
  kernel: Kernel;
  deadline: string;
  onAct: (kernelId: string, action: Act) => void;
  /** Opens the request form; missing where there is none. */
  onAsk?: () => void;
  trans: TranslationBundle;
}

/** Has its own clock, so that nothing else renders again. Screen readers skip the countdown. */
export function Notice({ kernel, deadline, onAct, onAsk, trans }: INoticeProps): JSX.Element {
  const now = useClock();
  const why = lastNotice(kernel);
  const choose = (action: Act) => () => onAct(kernel.kernel_id, action);
  return (
    <div className="jp-GpuShare-notice">
      <div role="alert">
        <span className="jp-GpuShare-notice-count" aria-live="off">
          {trans.__('GPU memory will be reclaimed in %1.', timeLeft(deadline, now))}
        </span>{' '}
        {why !== null && <span className="jp-GpuShare-faint">{reasonOf(why)}</span>}
      </div>
      <div className="jp-GpuShare-actions">
        <button
          className="jp-GpuShare-button jp-mod-primary"
          title={trans.__('Save the GPU memory to host memory now; resuming restores it')}
          onClick={choose('suspend')}
        >
          {trans.__('Suspend now')}
        </button>
        <button
          className="jp-GpuShare-button"
          title={trans.__('Save the GPU memory and restore it on a GPU with room')}
          onClick={choose('move')}
        >
          {trans.__('Move now')}
        </button>
        {onAsk !== undefined && (
          <button
            className="jp-GpuShare-button"
            title={trans.__('A larger guaranteed share is not reclaimed')}
            onClick={onAsk}
          >
            {trans.__('Request more…')}
          </button>
        )}
      </div>
    </div>
  );
}

/** The current time, updated every second. */
export function useClock(): number {
  const [now, setNow] = React.useState(Date.now());
  React.useEffect(() => {
    const timer = window.setInterval(() => setNow(Date.now()), 1000);
    return () => window.clearInterval(timer);
  }, []);
  return now;
}

function lastNotice(kernel: Kernel): Event | null {
  return [...kernel.events].reverse().find(event => event.kind === 'notice') ?? null;
}

/** The event's message without its countdown: "30 GiB … in 10 s: reason. Consequence." */
function reasonOf(event: Event): string {
  const start = event.message.indexOf(': ');
  const text = start < 0 ? event.message : event.message.slice(start + 2);
  return text.charAt(0).toUpperCase() + text.slice(1);
}
