/** Memory will be taken back: how long there is, and what its owner can still choose. */
import { TranslationBundle } from '@jupyterlab/translation';
import * as React from 'react';

import { timeLeft } from '../format';
import { Event, Kernel } from '../schema';
import { Act } from './actions';

interface INoticeProps {
  kernel: Kernel;
  deadline: string;
  onAct: (kernelId: string, action: Act) => void;
  /** Opens the request form; absent where there is none. */
  onAsk?: () => void;
  trans: TranslationBundle;
}

/** It keeps its own second hand, so that nothing else is drawn again. The seconds are not read out one by one. */
export function Notice({ kernel, deadline, onAct, onAsk, trans }: INoticeProps): JSX.Element {
  const now = useClock();
  const why = lastNotice(kernel);
  const choose = (action: Act) => () => onAct(kernel.kernel_id, action);
  return (
    <div className="jp-GpuShare-notice">
      <div role="alert">
        <span className="jp-GpuShare-notice-count" aria-live="off">
          {trans.__('GPU memory will be taken back in %1.', timeLeft(deadline, now))}
        </span>{' '}
        {why !== null && <span className="jp-GpuShare-faint">{reasonOf(why)}</span>}
      </div>
      <div className="jp-GpuShare-actions">
        <button
          className="jp-GpuShare-button jp-mod-primary"
          title={trans.__(
            'Save the GPU memory to host memory now and let the GPU go; it comes back when it is resumed'
          )}
          onClick={choose('suspend')}
        >
          {trans.__('Save and let go')}
        </button>
        <button
          className="jp-GpuShare-button"
          title={trans.__(
            'Save the GPU memory and bring it back where there is room, on another GPU if need be'
          )}
          onClick={choose('move')}
        >
          {trans.__('Move now')}
        </button>
        {onAsk !== undefined && (
          <button
            className="jp-GpuShare-button"
            title={trans.__('A larger share is guaranteed, and not taken back')}
            onClick={onAsk}
          >
            {trans.__('Ask for more…')}
          </button>
        )}
      </div>
    </div>
  );
}

/** The time, every second. */
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

/** The event's words without the countdown that it began with: "In 10 s 30 GiB … are taken back: why. What happens." */
function reasonOf(event: Event): string {
  const start = event.message.indexOf(': ');
  const text = start < 0 ? event.message : event.message.slice(start + 2);
  return text.charAt(0).toUpperCase() + text.slice(1);
}
