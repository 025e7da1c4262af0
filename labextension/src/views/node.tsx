/** The capability tiers of this node, and why any is missing. */
import { TranslationBundle } from '@jupyterlab/translation';
import * as React from 'react';

import { Status } from '../schema';

interface INodeProps {
  status: Status;
  trans: TranslationBundle;
}

export function Node({ status, trans }: INodeProps): JSX.Element {
  const tiers = tierWords(trans);
  const missing = status.tier_problems;
  const names = [
    ...status.tiers,
    ...Object.keys(missing).filter(name => !status.tiers.includes(name))
  ];
  return (
    <>
      <p className="jp-GpuShare-where">
        {status.node ?? trans.__('Node not known yet.')}
        {status.simulated && ` · ${trans.__('simulated GPUs')}`}
      </p>
      {names.length > 0 && (
        <ul className="jp-GpuShare-tiers">
          {names.map(name => (
            <li key={name} data-tier={name} data-has={!(name in missing)}>
              <span aria-hidden="true">{name in missing ? '✗' : '✓'}</span> {tiers[name] ?? name}
              {name in missing && (
                <div className="jp-GpuShare-faint">
                  {trans.__('Not available: %1', missing[name])}
                </div>
              )}
            </li>
          ))}
        </ul>
      )}
    </>
  );
}

/** What each tier means for a notebook. */
function tierWords(trans: TranslationBundle): { readonly [tier: string]: string } {
  return {
    observe: trans.__('Memory is measured per notebook'),
    cooperate: trans.__('Frameworks respect the memory limit'),
    limit: trans.__('The driver enforces the limit'),
    suspend: trans.__('GPU memory is saved before it is reclaimed'),
    relocate: trans.__('A notebook can move to another GPU')
  };
}
