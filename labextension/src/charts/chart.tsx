/** One chart, drawn again after every poll while it is visible. */
import { TranslationBundle } from '@jupyterlab/translation';
import * as React from 'react';

import { Plot } from '../dashboard/plot';
import { Kernel } from '../schema';
import { CHART, ChartName, chartText, chartTitle, nodeLines, notebookLines } from './charts';
import { ChartSource } from './source';

const SPAN_S = 3600;
/** More names would take more room than the plot. */
const MOST_NAMES = 8;

export interface IChartProps {
  name: ChartName;
  source: ChartSource;
  kernels: readonly Kernel[];
  /** Only this kernel, for charts of notebooks. */
  only?: string;
  theme: string;
  tall?: boolean;
  /** Whether the title is shown too: there is no heading. */
  titled?: boolean;
  trans: TranslationBundle;
}

/** Renders after every change of the measurements. */
export function useMeasurements(source: ChartSource): number {
  const [version, setVersion] = React.useState(0);
  React.useEffect(() => {
    const redraw = () => setVersion(before => before + 1);
    source.changed.connect(redraw);
    return () => void source.changed.disconnect(redraw);
  }, [source]);
  return version;
}

export function Chart(props: IChartProps): JSX.Element {
  const { name, source, kernels, only, theme, tall, trans } = props;
  const version = useMeasurements(source);
  const data = React.useMemo(
    () =>
      CHART[name].of === 'notebook'
        ? notebookLines(name, source.notebooks, kernels, only)
        : nodeLines(name, source.nodes, trans),
    [version, name, source, kernels, only, trans]
  );
  const { format, top, steps } = CHART[name];
  const present = chartText(name, data, trans);
  const text = `${chartTitle(name, trans)}. ${present}`;
  return (
    <Plot
      times={data.times}
      lines={data.lines}
      text={text}
      caption={props.titled ? text : present}
      theme={theme}
      legend={data.lines.length <= MOST_NAMES}
      top={top}
      steps={steps}
      span={SPAN_S}
      format={format}
      tall={tall}
    />
  );
}

/** Whether there is anything to draw: what is not measured is not shown. */
export function isMeasured(name: ChartName, source: ChartSource): boolean {
  const { of, metrics } = CHART[name];
  if (of === 'notebook') {
    return source.notebooks.size > 0;
  }
  return [...source.nodes.series.values()].some(
    one => metrics.includes(one.metric) && (one.gpu === '') === (of === 'host')
  );
}
