/** A chart as a panel of the main area, and the drag that creates one. */
import { IThemeManager, MainAreaWidget, ReactWidget } from '@jupyterlab/apputils';
import { TranslationBundle } from '@jupyterlab/translation';
import { MimeData } from '@lumino/coreutils';
import { IDisposable } from '@lumino/disposable';
import { Drag } from '@lumino/dragdrop';
import { Message } from '@lumino/messaging';
import { Widget } from '@lumino/widgets';
import * as React from 'react';

import { gpuIcon } from '../icon';
import { IGpuShare } from '../tokens';
import { Chart } from './chart';
import { ChartName, chartTitle } from './charts';
import { ChartSource } from './source';

/** Dock panels accept widgets under this type. */
const FACTORY_MIME = 'application/vnd.lumino.widget-factory';
/** A shorter movement is a click. */
const DRAG_PX = 5;

export interface IChartContext {
  readonly gpushare: IGpuShare;
  readonly source: ChartSource;
  readonly themes: IThemeManager | null;
  readonly trans: TranslationBundle;
}

export class ChartContent extends ReactWidget {
  constructor(
    readonly name: ChartName,
    private readonly context: IChartContext
  ) {
    super();
    this.addClass('jp-GpuShareDashboard');
    this.addClass('jp-GpuShareDashboard-chartPanel');
    context.themes?.themeChanged.connect(this.update, this);
  }

  dispose(): void {
    this.context.themes?.themeChanged.disconnect(this.update, this);
    this.rest();
    super.dispose();
  }

  protected onAfterShow(msg: Message): void {
    super.onAfterShow(msg);
    this.watch();
  }

  protected onAfterAttach(msg: Message): void {
    super.onAfterAttach(msg);
    this.watch();
  }

  protected onBeforeHide(msg: Message): void {
    this.rest();
    super.onBeforeHide(msg);
  }

  protected onBeforeDetach(msg: Message): void {
    this.rest();
    super.onBeforeDetach(msg);
  }

  protected render(): JSX.Element {
    const { gpushare, source, themes, trans } = this.context;
    return (
      <Chart
        name={this.name}
        source={source}
        kernels={gpushare.state.status?.kernels ?? []}
        theme={themes?.theme ?? ''}
        tall
        trans={trans}
      />
    );
  }

  private watch(): void {
    if (this.isVisible) {
      this.watching ??= this.context.source.watch();
    }
  }

  private rest(): void {
    this.watching?.dispose();
    this.watching = null;
  }

  private watching: IDisposable | null = null;
}

export function makeChart(name: ChartName, context: IChartContext): MainAreaWidget<ChartContent> {
  const widget = new MainAreaWidget({ content: new ChartContent(name, context) });
  widget.id = `jupyter-gpushare-chart-${name}`;
  widget.title.label = chartTitle(name, context.trans);
  widget.title.icon = gpuIcon;
  widget.title.closable = true;
  widget.toolbar.hide();
  return widget;
}

/** Drag a widget into the main area once the pointer has moved; `make` is called where it drops. */
export function dragOut(title: string, make: () => Widget, event: React.PointerEvent): void {
  const { clientX, clientY } = event;
  const end = () => {
    document.removeEventListener('pointermove', move, true);
    document.removeEventListener('pointerup', end, true);
  };
  const move = (now: PointerEvent) => {
    if (Math.abs(now.clientX - clientX) + Math.abs(now.clientY - clientY) < DRAG_PX) {
      return;
    }
    end();
    const mimeData = new MimeData();
    mimeData.setData(FACTORY_MIME, make);
    const dragImage = document.createElement('div');
    dragImage.className = 'jp-GpuShareDashboard-drag';
    dragImage.textContent = title;
    const drag = new Drag({
      mimeData,
      dragImage,
      proposedAction: 'move',
      supportedActions: 'move'
    });
    void drag.start(now.clientX, now.clientY).then(() => drag.dispose());
  };
  if (event.button === 0) {
    document.addEventListener('pointermove', move, true);
    document.addEventListener('pointerup', end, true);
  }
}
