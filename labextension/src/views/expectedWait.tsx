/** The expected wait, in the scheduler's words. */
import * as React from 'react';

import { ExpectedWait } from '../schema';

interface IExpectedProps {
  /** Missing in responses of older servers. */
  wait: ExpectedWait | null | undefined;
}

export function Expected({ wait }: IExpectedProps): JSX.Element | null {
  return !wait ? null : (
    <div className="jp-GpuShare-expected" data-basis={wait.basis}>
      {wait.message}
    </div>
  );
}
