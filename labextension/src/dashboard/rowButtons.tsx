/** The actions of a row as buttons. */
import { TranslationBundle } from '@jupyterlab/translation';
import * as React from 'react';

import { IRowAction } from './rowActions';

export function RowActions({
  actions,
  trans
}: {
  actions: readonly IRowAction[];
  trans: TranslationBundle;
}): JSX.Element | null {
  return actions.length === 0 ? null : (
    <span className="jp-GpuShareDashboard-actions" role="group" aria-label={trans.__('Actions')}>
      {actions.map(action => (
        <button
          key={action.id}
          className="jp-GpuShare-button"
          title={action.hint}
          onClick={action.run}
        >
          {action.label}
        </button>
      ))}
    </span>
  );
}
