/** Why a kernel waits: one sentence, its place in the queue, and what its owner could change. */
import { TranslationBundle } from '@jupyterlab/translation';
import * as React from 'react';

import { ReasonBody } from '../schema';

interface IReasonProps {
  reason: ReasonBody;
  position: number | null;
  trans: TranslationBundle;
}

export function Reason({ reason, position, trans }: IReasonProps): JSX.Element {
  return (
    <div className="jp-GpuShare-reason">
      <div>{reason.message}</div>
      {position !== null && (
        <div className="jp-GpuShare-faint">{trans.__('Place in the queue: %1', position)}</div>
      )}
      {reason.helps.length > 0 && (
        <>
          <div className="jp-GpuShare-faint">{trans.__('What would help:')}</div>
          <ul className="jp-GpuShare-helps">
            {reason.helps.map(help => (
              <li key={help.message}>{help.message}</li>
            ))}
          </ul>
        </>
      )}
    </div>
  );
}
