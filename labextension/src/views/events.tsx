/** The last events of a kernel, newest first. */
import { TranslationBundle } from '@jupyterlab/translation';
import * as React from 'react';

import { timeText } from '../format';
import { Event } from '../schema';

const SHOWN = 6;

interface IEventsProps {
  events: readonly Event[];
  trans: TranslationBundle;
}

export function Events({ events, trans }: IEventsProps): JSX.Element | null {
  if (events.length === 0) {
    return null;
  }
  const newest = events[events.length - 1];
  return (
    <details className="jp-GpuShare-events">
      <summary>
        {trans.__('Events')} <span className="jp-GpuShare-faint">{newest.message}</span>
      </summary>
      <ol reversed>
        {events
          .slice(-SHOWN)
          .reverse()
          .map((event, index) => (
            <li key={`${event.time} ${event.kind} ${index}`} data-kind={event.kind}>
              <time dateTime={event.time}>{timeText(event.time)}</time> {event.message}
            </li>
          ))}
      </ol>
    </details>
  );
}
