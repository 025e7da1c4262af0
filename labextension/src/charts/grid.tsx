/** All charts in the dashboard; each can be opened or dragged out as a panel of its own. */
import { TranslationBundle } from '@jupyterlab/translation';
import * as React from 'react';

import { problemText } from '../messages';
import { Kernel, NodeRow } from '../schema';
import { Chart, isMeasured, useMeasurements } from './chart';
import { ChartName, CHARTS, chartTitle } from './charts';
import { ChartSource } from './source';

export interface IChartPanels {
  /** Open the chart as a panel of the main area. */
  readonly open: (name: ChartName) => void;
  /** Begin to drag the chart out. */
  readonly drag: (name: ChartName, event: React.PointerEvent) => void;
}

interface IGridProps {
  source: ChartSource;
  panels: IChartPanels;
  nodes: readonly NodeRow[];
  kernels: readonly Kernel[];
  theme: string;
  trans: TranslationBundle;
}

export function ChartGrid(props: IGridProps): JSX.Element {
  const { source, nodes, trans } = props;
  useMeasurements(source);
  const shown = CHARTS.filter(name => isMeasured(name, source));
  return (
    <>
      <div className="jp-GpuShareDashboard-tools">
        {nodes.length > 1 && (
          <label>
            {trans.__('Node')}{' '}
            <select value={source.node} onChange={event => source.showNode(event.target.value)}>
              <option value="">{trans.__('all')}</option>
              {nodes.map(node => (
                <option key={node.name}>{node.name}</option>
              ))}
            </select>
          </label>
        )}
        <span className="jp-GpuShare-faint">
          {source.leftOut > 0
            ? trans._n(
                'The last hour. %1 GPU is not shown: choose a node.',
                'The last hour. %1 GPUs are not shown: choose a node.',
                source.leftOut
              )
            : trans.__('The last hour.')}
        </span>
        {source.problem !== null && (
          <span className="jp-GpuShare-warning" role="status">
            {problemText(source.problem, trans)}
          </span>
        )}
      </div>
      <div
        className="jp-GpuShareDashboard-scroll jp-GpuShareDashboard-charts"
        tabIndex={0}
        role="region"
        aria-label={trans.__('Charts')}
      >
        {shown.length === 0 && <p className="jp-GpuShare-faint">{trans.__('No data yet.')}</p>}
        {shown.map(name => (
          <ChartCard key={name} {...props} name={name} />
        ))}
      </div>
    </>
  );
}

function ChartCard(props: IGridProps & { name: ChartName }): JSX.Element {
  const { name, panels, trans } = props;
  const title = chartTitle(name, trans);
  return (
    <section className="jp-GpuShareDashboard-chart" aria-label={title} data-chart={name}>
      <header
        title={trans.__('Drag it out as a panel')}
        onPointerDown={event => panels.drag(name, event)}
      >
        <h3>{title}</h3>
        <button
          className="jp-GpuShare-link"
          onPointerDown={event => event.stopPropagation()}
          onClick={() => panels.open(name)}
        >
          {trans.__('Open as a panel')}
        </button>
      </header>
      <Chart {...props} />
    </section>
  );
}
