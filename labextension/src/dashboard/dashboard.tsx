/** The dashboard: cluster totals and one view at a time. */
import { TranslationBundle } from '@jupyterlab/translation';
import * as React from 'react';

import { timeText } from '../format';
import { problemText } from '../messages';
import { freshnessOf, IClusterState, leastFresh } from './state';
import { Tabs } from './tabs';
import { clusterTotals } from './totals';
import { ViewPanel } from './viewPanels';
import { IDashboardProps, SHOWS } from './views';

export function Dashboard(props: IDashboardProps): JSX.Element {
  const { state, status, view, trans } = props;
  const { freshness, table } = leastFresh(SHOWS[view].map(name => state[name]));
  const retry = (
    <button className="jp-GpuShare-link" onClick={props.onRetry}>
      {trans.__('Retry')}
    </button>
  );
  return (
    <div className="jp-GpuShareDashboard-content" data-freshness={freshness} data-view={view}>
      <div className="jp-GpuShareDashboard-head">
        <h2>{trans.__('GPU cluster')}</h2>
        {status?.simulated && (
          <span className="jp-GpuShare-simulated" title={trans.__('These GPUs are simulated')}>
            {trans.__('simulated')}
          </span>
        )}
        <Totals state={state} trans={trans} />
      </div>
      <Tabs view={view} onView={props.onView} trans={trans} />
      <div
        role="tabpanel"
        id="gpushare-dashboard-panel"
        aria-labelledby={`gpushare-tab-${view}`}
        className="jp-GpuShareDashboard-view"
      >
        {freshness === 'loading' && <p className="jp-GpuShare-faint">{trans.__('Loading…')}</p>}
        {freshness === 'failed' && (
          <p className="jp-GpuShare-warning" role="alert">
            {problemText(table.problem, trans)} {retry}
          </p>
        )}
        {freshness === 'stale' && (
          <p className="jp-GpuShare-warning" role="status">
            {problemText(table.problem, trans)}{' '}
            {trans.__('Last updated at %1.', timeText(table.at ?? 0))} {retry}
          </p>
        )}
        {(freshness === 'live' || freshness === 'stale') && <ViewPanel {...props} />}
      </div>
    </div>
  );
}

function Totals({
  state,
  trans
}: {
  state: IClusterState;
  trans: TranslationBundle;
}): JSX.Element | null {
  const nodes = state.nodes.rows;
  const workloads = state.workloads.rows;
  const figures = React.useMemo(
    () => (nodes === null ? null : clusterTotals(nodes, workloads ?? [])),
    [nodes, workloads]
  );
  if (figures === null) {
    return null;
  }
  const { gpus, allocated, ready, waiting } = figures;
  return (
    <p className="jp-GpuShareDashboard-figures">
      <span>
        <b>{`${allocated} / ${gpus}`}</b> {trans.__('GPUs allocated')}
      </span>
      <span>
        <b>{`${ready} / ${figures.nodes}`}</b> {trans.__('nodes ready')}
      </span>
      <span>
        <b>{waiting}</b> {trans._n('workload waiting', 'workloads waiting', waiting)}
      </span>
      {freshnessOf(state.nodes) === 'stale' && (
        <span>{trans.__('(at %1)', timeText(state.nodes.at ?? 0))}</span>
      )}
    </p>
  );
}
