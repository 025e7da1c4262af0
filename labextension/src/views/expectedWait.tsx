/** How much longer something waits, in the words of the scheduler, which say what they go by. */
import * as React from 'react';

import { ExpectedWait } from '../schema';

interface IExpectedProps {
  /** Absent in answers of servers that are older than this page. */
  wait: ExpectedWait | null | undefined;
}

export function Expected({ wait }: IExpectedProps): JSX.Element | null {
  return !wait ? null : (
    <div className="jp-GpuShare-expected" data-basis={wait.basis}>
      {wait.message}
    </div>
  );
}
