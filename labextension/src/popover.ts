/**
 * A popover below a button. Escape or a click outside closes it, and focus returns to the button.
 * `anchor` contains the button, which an overflowing toolbar creates again.
 */
import { Message } from '@lumino/messaging';
import { PanelLayout, Widget } from '@lumino/widgets';

const MARGIN = 4;

export class Popover extends Widget {
  constructor(
    private readonly body: Widget,
    private readonly anchor: HTMLElement,
    label: string
  ) {
    super();
    this.addClass('jp-GpuShare');
    this.addClass('jp-GpuShare-popover');
    this.node.setAttribute('role', 'dialog');
    this.node.setAttribute('aria-label', label);
    this.node.tabIndex = -1;
    const layout = (this.layout = new PanelLayout());
    layout.addWidget(body);
  }

  open(): void {
    Widget.attach(this, document.body);
  }

  handleEvent(event: Event): void {
    switch (event.type) {
      case 'keydown':
        this.onKey(event as KeyboardEvent);
        break;
      case 'pointerdown':
        if (
          !this.node.contains(event.target as Node) &&
          !this.anchor.contains(event.target as Node)
        ) {
          this.dispose();
        }
        break;
      case 'resize':
        this.place();
        break;
    }
  }

  closeAndReturn(): void {
    this.dispose();
    this.anchor.querySelector('button')?.focus();
  }

  protected onAfterAttach(msg: Message): void {
    super.onAfterAttach(msg);
    document.addEventListener('keydown', this, true);
    document.addEventListener('pointerdown', this, true);
    window.addEventListener('resize', this);
    this.observer = new ResizeObserver(() => {
      this.place();
      if (document.activeElement === document.body) {
        this.node.focus(); // the focused element was removed
      }
    });
    this.observer.observe(this.body.node);
    this.place();
    this.node.focus(); // a form takes the focus when it is rendered
  }

  protected onBeforeDetach(msg: Message): void {
    document.removeEventListener('keydown', this, true);
    document.removeEventListener('pointerdown', this, true);
    window.removeEventListener('resize', this);
    this.observer?.disconnect();
    super.onBeforeDetach(msg);
  }

  /** Escape closes the popover wherever the focus is; tabbing out of it closes it too. */
  private onKey(event: KeyboardEvent): void {
    const inside = this.node.contains(event.target as Node);
    if (event.key === 'Escape') {
      event.stopPropagation();
      this.closeAndReturn();
    } else if (event.key === 'Tab' && inside) {
      window.setTimeout(() => !this.node.contains(document.activeElement) && this.dispose());
    }
  }

  /** Place it below the button, inside the window. */
  private place(): void {
    const at = this.anchor.getBoundingClientRect();
    const left = Math.max(
      MARGIN,
      Math.min(at.left, window.innerWidth - this.node.offsetWidth - MARGIN)
    );
    const top = at.bottom + MARGIN;
    Object.assign(this.node.style, {
      left: `${left}px`,
      top: `${top}px`,
      maxHeight: `${window.innerHeight - top - MARGIN}px`
    });
  }

  private observer: ResizeObserver | null = null;
}
