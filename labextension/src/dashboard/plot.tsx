/** Lines over time. */
import * as React from 'react';
import uPlot from 'uplot';

import { timeText } from '../format';

const HEIGHT_PX = 200;
const LEAST_SPAN_S = 300;

export interface ILine {
  /** Distinguishes the line; also selects its style in the legend. */
  readonly key: string;
  readonly label: string;
  /** A variable of the theme (`--jp-…`), or a color. */
  readonly color: string;
  readonly dash?: readonly number[];
  readonly width: number;
  readonly fill?: boolean;
  /** At the times of the plot; null is a gap. */
  readonly values: readonly (number | null)[];
}

interface IPlotProps {
  /** Seconds since the epoch. */
  times: readonly number[];
  lines: readonly ILine[];
  /** The text alternative. */
  text: string;
  /** Changes with the theme, because colors are read when the plot is created. */
  theme: string;
  /** Whether the lines are named below the plot. */
  legend?: boolean;
  /** The upper end of the axis at least. */
  top?: number;
  /** The steps of the axis; missing: decimal ones. */
  steps?: readonly number[];
  /** The plot shows at most so many seconds; missing: all. */
  span?: number;
  /** Shown below the plot; missing: the text alternative. */
  caption?: string;
  /** A value on the axis. */
  format?: (value: number) => string;
  /** Fills the height of the element around it. */
  tall?: boolean;
}

export function Plot(props: IPlotProps): JSX.Element {
  const { times, lines, text, theme, legend = true, tall = false } = props;
  const host = React.useRef<HTMLDivElement>(null);
  const plot = React.useRef<uPlot | null>(null);
  const current = React.useRef(props);
  current.current = props;
  const data = React.useMemo(
    () => [times, ...lines.map(line => line.values)] as unknown as uPlot.AlignedData,
    [times, lines]
  );
  const style = JSON.stringify(lines.map(({ values: _values, ...one }) => one));

  React.useEffect(() => {
    const element = host.current!;
    const made = new uPlot(optionsOf(element, current), data, element);
    plot.current = made;
    const watcher = new ResizeObserver(
      () => element.clientWidth > 0 && made.setSize(sizeOf(element, tall))
    );
    watcher.observe(element);
    return () => {
      watcher.disconnect();
      made.destroy();
      plot.current = null;
    };
    // data is set below; the plot is created again only for another theme, language or set of lines
  }, [theme, style, tall]);

  React.useEffect(() => plot.current?.setData(data), [data]);

  return (
    <figure className="jp-GpuShareDashboard-plot" data-tall={tall || undefined}>
      <div ref={host} role="img" aria-label={text} />
      <figcaption>
        {legend && (
          <ul aria-hidden="true">
            {lines.map(line => (
              <li
                key={line.key}
                data-line={line.key}
                style={{ '--gpushare-line': cssColor(line.color) } as React.CSSProperties}
              >
                {line.label}
              </li>
            ))}
          </ul>
        )}
        {props.caption ?? text}
      </figcaption>
    </figure>
  );
}

function cssColor(color: string): string {
  return color.startsWith('--') ? `var(${color})` : color;
}

function sizeOf(element: HTMLElement, tall: boolean): { width: number; height: number } {
  const height = tall ? Math.max(100, element.clientHeight) : HEIGHT_PX;
  return { width: Math.max(200, element.clientWidth), height };
}

function optionsOf(element: HTMLElement, props: React.MutableRefObject<IPlotProps>): uPlot.Options {
  const { lines, tall = false } = props.current;
  const color = (name: string) =>
    name.startsWith('--')
      ? getComputedStyle(element).getPropertyValue(name).trim() || 'currentColor'
      : name;
  const stepped = uPlot.paths.stepped!({ align: 1 });
  // fainter than the theme's borders, which are as strong as the lines in high contrast
  const faint = {
    stroke: `color-mix(in srgb, ${color('--jp-ui-font-color1')} 20%, transparent)`,
    width: 1
  };
  const axis: uPlot.Axis = { stroke: color('--jp-ui-font-color1'), grid: faint, ticks: faint };
  const format = (value: number) => props.current.format?.(value) ?? String(value);
  return {
    ...sizeOf(element, tall),
    legend: { show: false },
    cursor: { show: false },
    scales: {
      x: { time: true, range: (_plot, min, max) => [beginOf(props.current, min), max] },
      y: { range: (_plot, _min, max) => [0, Math.max(props.current.top ?? 1, max * 1.1)] }
    },
    axes: [
      { ...axis, space: 80, values: (_plot, seconds) => seconds.map(one => timeText(1000 * one)) },
      {
        ...axis,
        size: 66,
        space: 32,
        incrs: props.current.steps as number[] | undefined,
        values: (_plot, values) => values.map(format)
      }
    ],
    series: [
      {},
      ...lines.map(line => ({
        label: line.label,
        stroke: color(line.color),
        width: line.width,
        dash: line.dash as number[] | undefined,
        fill: line.fill ? `color-mix(in srgb, ${color(line.color)} 20%, transparent)` : undefined,
        paths: stepped,
        points: { show: false }
      }))
    ]
  };
}

/** A plot of a young history begins with it, but is at least five minutes wide. */
function beginOf({ span, times }: IPlotProps, min: number): number {
  const last = times[times.length - 1];
  return span === undefined || last === undefined
    ? min
    : Math.max(last - span, Math.min(min, last - LEAST_SPAN_S));
}
