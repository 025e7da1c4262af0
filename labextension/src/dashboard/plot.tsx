/** Quota, fair share, allocated and requested GPUs of a queue over time. */
import { TranslationBundle } from '@jupyterlab/translation';
import * as React from 'react';
import uPlot from 'uplot';

import { timeText } from '../format';
import { IQueueSeries } from './queueSeries';

const HEIGHT_PX = 200;

interface IPlotProps {
  series: IQueueSeries;
  /** The text alternative. */
  text: string;
  /** Changes with the theme, because colors are read when the plot is created. */
  theme: string;
  trans: TranslationBundle;
}

interface ILine {
  readonly field: keyof Omit<IQueueSeries, 'times'>;
  readonly label: string;
  readonly color: string;
  readonly dash?: number[];
  readonly width: number;
  readonly fill?: boolean;
}

function linesOf(trans: TranslationBundle): ILine[] {
  return [
    {
      field: 'allocated',
      label: trans.__('Allocated'),
      color: '--jp-success-color1',
      width: 2,
      fill: true
    },
    {
      field: 'fairShare',
      label: trans.__('Fair share'),
      color: '--jp-brand-color1',
      width: 2,
      dash: [8, 4]
    },
    { field: 'quota', label: trans.__('Quota'), color: '--jp-ui-font-color1', width: 1 },
    {
      field: 'requested',
      label: trans.__('Requested'),
      color: '--jp-warn-color1',
      width: 2,
      dash: [2, 4]
    }
  ];
}

export function Plot({ series, text, theme, trans }: IPlotProps): JSX.Element {
  const host = React.useRef<HTMLDivElement>(null);
  const plot = React.useRef<uPlot | null>(null);
  const lines = React.useMemo(() => linesOf(trans), [trans]);
  const data = React.useMemo(() => dataOf(series, lines), [series, lines]);

  React.useEffect(() => {
    const element = host.current!;
    const made = new uPlot(optionsOf(element, lines), data, element);
    plot.current = made;
    const watcher = new ResizeObserver(
      () =>
        element.clientWidth > 0 && made.setSize({ width: element.clientWidth, height: HEIGHT_PX })
    );
    watcher.observe(element);
    return () => {
      watcher.disconnect();
      made.destroy();
    };
    // data is set below; the plot is created again only for another theme or language
  }, [theme, lines]);

  React.useEffect(() => plot.current?.setData(data), [data]);

  return (
    <figure className="jp-GpuShareDashboard-plot">
      <div ref={host} role="img" aria-label={text} />
      <figcaption>
        <ul aria-hidden="true">
          {lines.map(line => (
            <li key={line.field} data-line={line.field}>
              {line.label}
            </li>
          ))}
        </ul>
        {text}
      </figcaption>
    </figure>
  );
}

function dataOf(series: IQueueSeries, lines: readonly ILine[]): uPlot.AlignedData {
  return [[...series.times], ...lines.map(line => [...series[line.field]])] as uPlot.AlignedData;
}

function optionsOf(element: HTMLElement, lines: readonly ILine[]): uPlot.Options {
  const color = (name: string) =>
    getComputedStyle(element).getPropertyValue(name).trim() || 'currentColor';
  const stepped = uPlot.paths.stepped!({ align: 1 });
  // fainter than the theme's borders, which are as strong as the lines in high contrast
  const faint = {
    stroke: `color-mix(in srgb, ${color('--jp-ui-font-color1')} 20%, transparent)`,
    width: 1
  };
  const axis: uPlot.Axis = { stroke: color('--jp-ui-font-color1'), grid: faint, ticks: faint };
  return {
    width: Math.max(200, element.clientWidth),
    height: HEIGHT_PX,
    legend: { show: false },
    cursor: { show: false },
    scales: { x: { time: true }, y: { range: (_plot, _min, max) => [0, Math.max(1, max * 1.1)] } },
    axes: [
      { ...axis, space: 80, values: (_plot, seconds) => seconds.map(one => timeText(1000 * one)) },
      { ...axis, size: 44 }
    ],
    series: [
      {},
      ...lines.map(line => ({
        label: line.label,
        stroke: color(line.color),
        width: line.width,
        dash: line.dash,
        fill: line.fill ? `color-mix(in srgb, ${color(line.color)} 20%, transparent)` : undefined,
        paths: stepped,
        points: { show: false }
      }))
    ]
  };
}
