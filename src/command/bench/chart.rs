//! The figures as a drawing: rate above, latency below, by admissions in flight, each with the flush floor.

use std::ops::Range;

use plotters::prelude::*;

use super::figures::{Admissions, Figures};
use crate::command::exit::{Exit, Failure};

const SIZE: (u32, u32) = (800, 800);
const FONT: (&str, u32) = ("sans-serif", 16);

/// A line's name, colour and value.
type Line<'a> = (&'a str, RGBColor, fn(&Admissions) -> f64);

/// One panel: its name, the lines over admissions in flight, and the flush floor.
struct Panel<'a> {
    name: &'a str,
    lines: &'a [Line<'a>],
    floor: f64,
}

/// The drawing, as SVG.
pub(super) fn draw(figures: &Figures) -> Result<String, Failure> {
    let mut svg = String::new();
    let rate = Panel {
        name: "admissions a second",
        lines: &[("admissions", BLUE, Admissions::per_second)],
        floor: figures.floor.per_second(),
    };
    let latency = Panel {
        name: "latency, ms",
        lines: &[("p50", BLUE, |of| of.latency.p50), ("p99", RED, |of| of.latency.p99)],
        floor: figures.floor.latency.p50,
    };
    let drawn = {
        let root = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
        let title = format!("Durable admissions: {} in {}", figures.engine, figures.directory.display());
        root.fill(&WHITE)
            .map_err(|error| error.to_string())
            .and_then(|()| root.titled(&title, FONT).map_err(|error| error.to_string()))
            .and_then(|root| {
                let (above, below) = root.split_vertically(SIZE.1 / 2);
                panel(&above, figures, &rate).and_then(|()| panel(&below, figures, &latency))
            })
            .and_then(|()| root.present().map_err(|error| error.to_string()))
    };
    drawn.map_err(|error| Failure::new(Exit::Failed, "svg", format!("cannot draw the figures: {error}")))?;
    Ok(svg)
}

fn panel<D: DrawingBackend>(
    area: &DrawingArea<D, plotters::coord::Shift>,
    figures: &Figures,
    panel: &Panel<'_>,
) -> Result<(), String> {
    let at = |of: &Admissions| of.in_flight as f64;
    let horizontal = around(figures.admissions.iter().map(at));
    let values = figures.admissions.iter().flat_map(|of| panel.lines.iter().map(|(_, _, value)| value(of)));
    let vertical = around(values.chain([panel.floor]));
    let mut chart = ChartBuilder::on(area)
        .margin(12)
        .x_label_area_size(36)
        .y_label_area_size(72)
        .build_cartesian_2d(horizontal.clone().log_scale(), vertical.log_scale())
        .map_err(|error| error.to_string())?;
    chart
        .configure_mesh()
        .x_desc("admissions in flight")
        .y_desc(panel.name)
        .label_style(FONT)
        .draw()
        .map_err(|error| error.to_string())?;
    let floor = [(horizontal.start, panel.floor), (horizontal.end, panel.floor)];
    let lines = panel
        .lines
        .iter()
        .map(|(name, colour, value)| {
            let points = figures.admissions.iter().map(|of| (at(of), value(of))).collect::<Vec<_>>();
            (*name, *colour, points, 4)
        })
        .chain([("flush floor", BLACK, floor.to_vec(), 0)]);
    for (name, colour, points, size) in lines {
        chart
            .draw_series(LineSeries::new(points, colour.stroke_width(2)).point_size(size))
            .map_err(|error| error.to_string())?
            .label(name)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 20, y)], colour.stroke_width(2)));
    }
    chart
        .configure_series_labels()
        .background_style(WHITE)
        .border_style(BLACK)
        .label_font(FONT)
        .draw()
        .map_err(|error| error.to_string())
}

/// A range around `values` with some room, for a logarithmic axis.
fn around(values: impl Iterator<Item = f64>) -> Range<f64> {
    // Nothing measured is zero or less but where nothing was measured at all.
    let (least, greatest) = values
        .filter(|value| *value > 0.0)
        .fold((f64::MAX, 0.0_f64), |(least, greatest), value| (least.min(value), greatest.max(value)));
    if greatest > 0.0 { least / 1.5..greatest * 1.5 } else { 0.1..10.0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::bench::figures::{Floor, Times};

    fn figures(counts: &[usize]) -> Figures {
        let latency = Times { p50: 0.2, p99: 1.5, greatest: 9.0 };
        let of = |in_flight: &usize| Admissions {
            in_flight: *in_flight,
            admitted: 1_000,
            seconds: 1.0,
            batches: 10,
            latency,
        };
        Figures {
            engine: "journal",
            directory: "/a <directory> & more".into(),
            floor: Floor { flushes: 100, seconds: 1.0, latency },
            admissions: counts.iter().map(of).collect(),
        }
    }

    #[test]
    fn one_count_or_many_are_drawn_with_their_floor() {
        for counts in [&[1][..], &[1, 8, 64, 512, 4_096]] {
            let svg = draw(&figures(counts)).expect("drawn");
            assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"), "{svg}");
            assert_eq!(svg.matches("flush floor").count(), 2);
            assert!(svg.contains("&lt;directory&gt;"), "names are escaped");
        }
    }

    #[test]
    fn nothing_measured_is_drawn_empty() {
        let mut empty = figures(&[1]);
        empty.admissions.iter_mut().for_each(|of| (of.admitted, of.latency) = (0, Times::default()));
        assert!(draw(&empty).is_ok());
    }
}
